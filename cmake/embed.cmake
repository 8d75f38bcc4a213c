# Writes a C file with the bytes of files: cmake -DOUTPUT=assets.c -DNAMES="a;b" -DFILES="a.css;b.js" -P embed.cmake
set(text "/* Made from files of src/monitor/page. */\n#include \"monitor/assets.h\"\n\n")
foreach(name file IN ZIP_LISTS NAMES FILES)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
  string(APPEND text "const char tt_page_${name}[] = {\n${bytes}0x00};\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
