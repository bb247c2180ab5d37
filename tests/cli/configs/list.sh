ebb configs
