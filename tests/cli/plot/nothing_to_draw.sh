ebb plot --title Empty
