ebb tokenize
