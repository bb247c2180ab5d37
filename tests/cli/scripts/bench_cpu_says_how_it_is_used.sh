# Neither help nor a mistake builds anything.
sh "$SOURCE/bench/cpu.sh" --help | sed -n '1p;3p'
sh "$SOURCE/do" bench --help | sed -n '1p'
sh "$SOURCE/bench/cpu.sh" nowhere
mkdir build
touch build/CMakeCache.txt
sh "$SOURCE/bench/cpu.sh" build --round 3
sh "$SOURCE/bench/cpu.sh" build --rounds
