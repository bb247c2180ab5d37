ebb probe thread=2
