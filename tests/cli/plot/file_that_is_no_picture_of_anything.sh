echo 'learning rate: 3' >notes.txt
ebb plot notes.txt
