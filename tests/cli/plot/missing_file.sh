ebb plot nothing.json
