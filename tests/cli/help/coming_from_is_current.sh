# The tables of docs/COMING_FROM.md stand between "<!-- keys of PROJECT -->" and "<!-- end -->".
for project in torchtune trl axolotl unsloth; do
    { echo; ebb help --markdown $project; echo; } >wanted.md
    sed -n "/^<!-- keys of $project -->\$/,/^<!-- end -->\$/p" "$SOURCE/docs/COMING_FROM.md" | sed '1d; $d' >there.md
    diff -u there.md wanted.md ||
        { echo "to update: what 'ebb help --markdown $project' prints belongs into docs/COMING_FROM.md"; exit 1; }
done
ebb help --markdown trl | grep -E '`(activation_offloading|load_in_4bit|dataset_name|loss_type|truncation_mode|gradient_checkpointing)`'
ebb help --markdown peft
