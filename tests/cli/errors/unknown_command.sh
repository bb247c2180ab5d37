ebb sfft
