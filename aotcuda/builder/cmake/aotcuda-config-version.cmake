# The CMake package has the version of aotcuda, which is in aotcuda/version.py.
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/../../version.py" _aotcuda_line REGEX "^__version__ = ")
string(REGEX MATCH "[0-9]+(\\.[0-9]+)*" PACKAGE_VERSION "${_aotcuda_line}")
unset(_aotcuda_line)

set(PACKAGE_VERSION_COMPATIBLE FALSE)
if(PACKAGE_FIND_VERSION VERSION_LESS_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
