ebb help cutoff_len
