mkdir model
ebb tokenize model
