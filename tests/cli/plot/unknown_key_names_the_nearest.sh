ebb plot run --ouput picture.png
