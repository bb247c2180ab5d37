ebb probe device=cpu threads=5000
