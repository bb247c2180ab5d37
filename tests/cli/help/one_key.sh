ebb help max_length
