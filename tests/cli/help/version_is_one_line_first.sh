ebb --version | head -n 1
ebb version | head -n 1
