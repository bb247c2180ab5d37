ebb probe memory_budget=8GiB
