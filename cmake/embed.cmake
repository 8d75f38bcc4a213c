# Writes a C file with the bytes of files, as constants tt_PREFIX_a, tt_PREFIX_b that HEADER declares:
# cmake -DOUTPUT=assets.c -DHEADER=monitor/assets.h -DPREFIX=page -DNAMES="a;b" -DFILES="a.css;b.js" -P embed.cmake
set(text "/* Made from files of a folder page/. */\n#include \"${HEADER}\"\n\n")
foreach(name file IN ZIP_LISTS NAMES FILES)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
  string(APPEND text "const char tt_${PREFIX}_${name}[] = {\n${bytes}0x00};\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
