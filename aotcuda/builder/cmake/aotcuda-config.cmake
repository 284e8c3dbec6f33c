# find_package(aotcuda) defines the function aotcuda_build. docs/build-systems.md shows its use.
#
#   aotcuda_build(<target> [PROJECT <folder>] [DIRECTORY <folder>] [DESTINATION <folder>] [PYTHON <program>])
#
# Add a target to ALL that builds the modules of [tool.aotcuda] in PROJECT's pyproject.toml, as `aotcuda build` does.
#
#   PROJECT      the folder of pyproject.toml; default: CMAKE_SOURCE_DIR
#   DIRECTORY    the output folder, with the layout of a wheel; default: <target> in the current binary folder, which
#                `clean` removes (other folders stay, since they may have other files)
#   DESTINATION  the folder, from which packages are imported, into which the files of the last build are installed;
#                default: no installation
#   PYTHON       the Python with aotcuda and the compilers; default: the Python of find_package(Python) or (Python3)
#
# The target builds again if pyproject.toml, or a source, header or data file that the last build read, has changed, and
# if an output is missing. Files with the same content are not written again. <target>_DIRECTORY is set to DIRECTORY.

if(CMAKE_VERSION VERSION_LESS 3.21)
  set(aotcuda_FOUND FALSE)
  set(aotcuda_NOT_FOUND_MESSAGE "aotcuda needs CMake 3.21 or newer; this is ${CMAKE_VERSION}")
  return()
endif()
cmake_policy(VERSION 3.21...4.0)

function(aotcuda_build target)
  cmake_parse_arguments(PARSE_ARGV 1 given "" "PROJECT;DIRECTORY;DESTINATION;PYTHON" "")
  if(DEFINED given_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "aotcuda_build(${target}): unknown argument ${given_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT DEFINED given_PROJECT)
    set(given_PROJECT "${CMAKE_SOURCE_DIR}")
  endif()
  if(NOT DEFINED given_DIRECTORY)
    set(given_DIRECTORY "${target}")
    if(NOT CMAKE_CURRENT_BINARY_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR) # <target> may be a package in the source folder
      set_property(DIRECTORY APPEND PROPERTY ADDITIONAL_CLEAN_FILES "${CMAKE_CURRENT_BINARY_DIR}/${target}")
    endif()
  endif()
  get_filename_component(given_PROJECT "${given_PROJECT}" ABSOLUTE)
  get_filename_component(given_DIRECTORY "${given_DIRECTORY}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")
  if(NOT DEFINED given_PYTHON)
    if(NOT Python_EXECUTABLE AND NOT Python3_EXECUTABLE)
      find_package(Python REQUIRED COMPONENTS Interpreter)
    endif()
    if(Python_EXECUTABLE)
      set(given_PYTHON "${Python_EXECUTABLE}")
    else()
      set(given_PYTHON "${Python3_EXECUTABLE}")
    endif()
  endif()
  if(NOT EXISTS "${given_PROJECT}/pyproject.toml")
    message(FATAL_ERROR "aotcuda_build(${target}): ${given_PROJECT} has no pyproject.toml; name its folder by PROJECT")
  endif()
  execute_process(
    COMMAND "${given_PYTHON}" -c "import aotcuda"
    RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "aotcuda_build(${target}): ${given_PYTHON} has no aotcuda; name the Python that has it by PYTHON")
  endif()

  set(stamp "${CMAKE_CURRENT_BINARY_DIR}/${target}.stamp")
  set(depfile "${CMAKE_CURRENT_BINARY_DIR}/${target}.d")
  add_custom_command(
    OUTPUT "${stamp}"
    COMMAND
      "${given_PYTHON}" -m aotcuda build "${given_PROJECT}" --quiet
      --out "${given_DIRECTORY}" --depfile "${depfile}" --stamp "${stamp}"
    DEPENDS "${given_PROJECT}/pyproject.toml"
    DEPFILE "${depfile}"
    COMMENT "Compiling the GPU kernels of ${given_PROJECT}/pyproject.toml"
    USES_TERMINAL # show progress and errors at once
    VERBATIM)
  add_custom_target(${target} ALL DEPENDS "${stamp}")
  set(${target}_DIRECTORY "${given_DIRECTORY}" PARENT_SCOPE)
  if(DEFINED given_DESTINATION)
    # Install the files that the stamp lists: files of earlier builds stay in the folder, and a missing file is an error.
    set(script "${CMAKE_CURRENT_BINARY_DIR}/${target}.install.cmake")
    configure_file("${CMAKE_CURRENT_FUNCTION_LIST_DIR}/install.cmake.in" "${script}" @ONLY)
    install(SCRIPT "${script}")
  endif()
endfunction()
