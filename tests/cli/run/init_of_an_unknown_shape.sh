ebb init huge-llama model
