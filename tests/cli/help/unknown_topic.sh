ebb help learning_rat
