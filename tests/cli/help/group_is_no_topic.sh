ebb help memory
ebb help generation
exit 0
