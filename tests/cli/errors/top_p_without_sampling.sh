ebb generate model=m top_p=0.9
