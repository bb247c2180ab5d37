ebb probe device=cpu dtype=float16
