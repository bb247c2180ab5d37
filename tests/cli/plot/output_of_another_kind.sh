ebb plot nothing.json --output picture.jpg
