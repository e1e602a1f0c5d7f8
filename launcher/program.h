// Finds a program as the kernel and execvp() will, before anything is started.
#pragma once

#include <string>

namespace kolo::internal {

struct ProgramCheck {
  int exit_code = 0;  // 0, 126 or 127
  std::string error;
};

// `search_path` as PATH has it; relative names with a slash count from `directory` (empty: the
// current one).
ProgramCheck check_program(const std::string& name, const std::string& search_path,
                           const std::string& directory);

// The exit code and text for an exec that failed with `error_number`.
ProgramCheck explain_exec_error(const std::string& name, int error_number);

}  // namespace kolo::internal
