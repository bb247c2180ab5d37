ebb help --markdown | diff -u "$SOURCE/docs/CONFIG.md" - ||
    { echo "to update: ebb help --markdown >docs/CONFIG.md"; exit 1; }
