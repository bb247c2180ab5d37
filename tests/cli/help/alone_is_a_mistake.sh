ebb
