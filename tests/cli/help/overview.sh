ebb help
