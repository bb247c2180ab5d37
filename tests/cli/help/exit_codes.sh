ebb help exit
