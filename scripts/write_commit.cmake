# Writes OUTPUT, a header with the commit that is built, unless the file already has this content. The commit is COMMIT
# if that is not empty, else what Git says, with "-dirty" when files differ from it. Without Git it is "unknown".
if(COMMIT STREQUAL "")
  execute_process(
    COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT COMMIT MATCHES "^[0-9A-Za-z._+-]+$")
  set(COMMIT unknown)
endif()
set(text "#define TD_COMMIT \"${COMMIT}\"\n")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
