# How a room, a test and a program of this project are compiled. Flags are set on our own targets only, so that a project
# which adds this one as a subdirectory keeps its own.

find_program(REGARD_CCACHE ccache)
if(REGARD_CCACHE AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${REGARD_CCACHE})
endif()

# g++ 12 takes std::string's own copying for overlapping memcpy and the inactive members of a std::variant for uninitialised
# ones once it inlines enough of them (its bugs 105651 and 105562); at -O1, where the dev preset builds, both warnings stay on.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13 AND CMAKE_BUILD_TYPE STREQUAL "Release")
  set(REGARD_FALSE_WARNINGS -Wno-restrict -Wno-maybe-uninitialized)
endif()

# clang warns of a function that libstdc++ 12 deprecates and calls itself, in std::stable_sort.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  list(APPEND REGARD_FALSE_WARNINGS -Wno-deprecated-declarations)
endif()

# What every target of ours is compiled with. g++ leaves sign conversions out of -Wconversion in C++; clang is told the same. Contraction is off because a fused multiply-add that the compiler invents
# changes the bits of a row; wide instructions come from target pragmas in src/kernels/isa, never from a flag here.
function(regard_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON
                        CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(${target} PRIVATE -ffp-contract=off -fno-math-errno -Wall -Wextra -Wconversion -Wshadow
                         $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion> ${REGARD_FALSE_WARNINGS}
                         $<$<BOOL:${REGARD_WERROR}>:-Werror>)
  if(REGARD_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${REGARD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${REGARD_SANITIZE})
  endif()
  if(REGARD_BUILD_FUZZERS)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# The kernels are templates that are inlined into functions of thousands of accesses; with every check spelled out in place,
# one of their sources compiles for minutes. So the address sanitizer checks the same accesses by calls, the checks of pointers
# that it makes superfluous are left out (what such a pointer reaches is reported all the same), and the fuzzers take no guidance
# from branches that the shape of a tile decides.
function(regard_kernel_sanitizers)
  set(kernels ${ARGN})
  list(FILTER kernels INCLUDE REGEX "/kernels/isa/")
  if(NOT kernels OR NOT REGARD_SANITIZE MATCHES "address")
    return()
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(options -mllvm -asan-instrumentation-with-call-threshold=0 -fno-sanitize=fuzzer-no-link)
  else()
    set(options --param asan-instrumentation-with-call-threshold=0)
  endif()
  if(REGARD_SANITIZE MATCHES "undefined")
    list(APPEND options -fno-sanitize=null,alignment,pointer-overflow)
  endif()
  set_property(SOURCE ${kernels} APPEND PROPERTY COMPILE_OPTIONS ${options})
endfunction()

# Sets REGARD_BUILT_ISAS to what REGARD_ISAS asks for, with what that builds on.
function(regard_read_isas)
  set(all baseline avx2 avx512 avx512_bf16)
  set(built baseline ${REGARD_ISAS})
  foreach(isa IN LISTS REGARD_ISAS)
    if(NOT isa IN_LIST all)
      list(JOIN all ", " expected)
      message(FATAL_ERROR "REGARD_ISAS: '${isa}' is no instruction set of this library; expected some of ${expected}")
    endif()
  endforeach()
  if(NOT REGARD_ISAS)
    set(built ${all})
  elseif("avx512_bf16" IN_LIST built)
    list(APPEND built avx512)
  endif()
  list(REMOVE_DUPLICATES built)
  set(REGARD_BUILT_ISAS "${built}" PARENT_SCOPE)
  list(REMOVE_ITEM all ${built})
  set(REGARD_LEFT_OUT_ISAS "${all}" PARENT_SCOPE)
endfunction()
regard_read_isas()

# Reads src/rooms.txt: sets REGARD_ROOMS (in order) and REGARD_ROOM_<name>_DEPS.
function(regard_read_rooms file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} lines REGEX "^[a-z]+:")
  set(rooms "")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^([a-z]+): *(.*)$" _ "${line}")
    set(room ${CMAKE_MATCH_1})
    string(REPLACE " " ";" deps "${CMAKE_MATCH_2}")
    list(APPEND rooms ${room})
    set(REGARD_ROOM_${room}_DEPS "${deps}" PARENT_SCOPE)
  endforeach()
  set(REGARD_ROOMS "${rooms}" PARENT_SCOPE)
endfunction()

# What every test program is compiled with. Under sanitizers the tests' own code goes without the checks for null and
# alignment, which take a third of its compile time: the address sanitizer reports such accesses too, and the library keeps them.
function(regard_test_options target)
  regard_compile_options(${target})
  if(REGARD_SANITIZE MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=null,alignment)
  endif()
  # Optimising a test takes longer than it saves, except where the tests themselves compute much.
  if(target MATCHES "_test$" AND NOT target MATCHES "^(mask|kernels|attention|nn|text|train)_test$")
    target_compile_options(${target} PRIVATE -O0)
  endif()
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE REGARD_TEST_DATA="${PROJECT_SOURCE_DIR}/tests")
endfunction()

# One test program per directory of tests/ that mirrors a room. A program whose room reaches a kernel runs once for each
# instruction set (REGARD_ISA forces it; a set that the machine lacks is reported as skipped by the program itself).
function(regard_room_test room)
  set(linked ${room})
  if(ARGC GREATER 1)
    set(linked ${ARGV1})
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${room}/*_test.cc)
  add_executable(${room}_test ${sources} ${CMAKE_CURRENT_SOURCE_DIR}/support/test_main.cc)
  regard_test_options(${room}_test)
  target_link_libraries(${room}_test PRIVATE regard_${linked} GTest::gtest GTest::gmock rapidcheck nlohmann_json::nlohmann_json)
  if(linked STREQUAL "kernels" OR "kernels" IN_LIST REGARD_ROOM_${linked}_DEPS)
    # A program of many files is run in parts, which may run side by side; the largest programs begin.
    list(LENGTH sources count)
    set(shards 1)
    if(count GREATER 16)
      set(shards 4)
    elseif(count GREATER 6)
      set(shards 2)
    endif()
    # In f32 avx512_bf16 runs the very kernels of avx512 (a test compares the tables), so only what it has besides runs again.
    set(isas ${REGARD_BUILT_ISAS})
    list(REMOVE_ITEM isas avx512_bf16)
    foreach(isa IN LISTS isas)
      foreach(shard RANGE 1 ${shards})
        set(name ${room}.${isa})
        if(shards GREATER 1)
          string(APPEND name .${shard})
        endif()
        math(EXPR index "${shard} - 1")
        add_test(NAME ${name} COMMAND ${room}_test)
        set_tests_properties(${name} PROPERTIES LABELS "unit;per_isa" SKIP_RETURN_CODE 77 COST ${count}
                             ENVIRONMENT "REGARD_ISA=${isa};GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${index}")
      endforeach()
    endforeach()
    if("avx512_bf16" IN_LIST REGARD_BUILT_ISAS AND room MATCHES "^(kernels|attention|nn)$")
      add_test(NAME ${room}.avx512_bf16 COMMAND ${room}_test --gtest_filter=*Bf16*:AttentionCapabilities.*)
      set_tests_properties(${room}.avx512_bf16 PROPERTIES ENVIRONMENT REGARD_ISA=avx512_bf16 LABELS "unit;per_isa" SKIP_RETURN_CODE 77)
    endif()
  else()
    add_test(NAME ${room} COMMAND ${room}_test)
    set_tests_properties(${room} PROPERTIES LABELS unit)
  endif()
endfunction()
