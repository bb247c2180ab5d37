ebb help probe
