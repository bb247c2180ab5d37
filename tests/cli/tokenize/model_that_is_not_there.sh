ebb tokenize nowhere
