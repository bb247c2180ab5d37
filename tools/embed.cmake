# Writes a C file that holds the text of files: cmake -DOUT=x.c -DDIR=configs -P tools/embed.cmake
# Text goes in line by line as string literals, so that the result can be read and diffed.
# SPDX-License-Identifier: Apache-2.0
file(GLOB files RELATIVE ${DIR} ${DIR}/*.yaml ${DIR}/shapes/*.json ${DIR}/chat_templates/*.jinja)
list(SORT files)
set(text "/* Made by tools/embed.cmake from the files in configs/; change those instead.\n * SPDX-License-Identifier: Apache-2.0 */\n")
string(APPEND text "#include \"cli/embedded.h\"\n\nstatic const struct ebb_embedded files[] = {\n")
foreach(name IN LISTS files)
    file(READ ${DIR}/${name} body)
    string(REPLACE "\\" "\\\\" body "${body}")
    string(REPLACE "\"" "\\\"" body "${body}")
    string(REPLACE "\n" "\\n\"\n     \"" body "${body}")
    string(APPEND text "    {\"${name}\",\n     \"${body}\"},\n")
endforeach()
string(APPEND text "};\n\nconst struct ebb_embedded *ebb_embedded_files(size_t *count)\n{\n    *count = sizeof files / sizeof files[0];\n    return files;\n}\n")
file(WRITE ${OUT}.new "${text}")
file(COPY_FILE ${OUT}.new ${OUT} ONLY_IF_DIFFERENT)
file(REMOVE ${OUT}.new)
