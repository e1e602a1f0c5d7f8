#include "launcher/program.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>

#include "launcher/verdict.h"

namespace kolo::internal {
namespace {

// 0, or an errno value.
int try_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return errno;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  if (!S_ISREG(status.st_mode)) return EACCES;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : EACCES;
}

std::string below(const std::string& directory, const std::string& path) {
  return directory.empty() || path.starts_with('/') ? path : directory + "/" + path;
}

}  // namespace

ProgramCheck explain_exec_error(const std::string& name, int error_number) {
  const bool missing = error_number == ENOENT || error_number == ENOTDIR;
  if (missing && name.find('/') == std::string::npos) {
    return {kExitNotFound,
            "program '" + name + "' is not on PATH; give its path, such as ./" + name};
  }
  if (missing) return {kExitNotFound, "program '" + name + "' does not exist"};
  if (error_number == EISDIR) {
    return {kExitNotExecutable, "program '" + name + "' is a directory; name the program in it"};
  }
  if (error_number == EACCES) {
    return {kExitNotExecutable, "program '" + name + "' is not executable; try: chmod +x " + name};
  }
  return {kExitNotExecutable, "program '" + name + "' cannot be run: " + strerror(error_number)};
}

ProgramCheck check_program(const std::string& name, const std::string& search_path,
                           const std::string& directory) {
  if (name.empty()) return explain_exec_error(name, ENOENT);
  if (name.find('/') != std::string::npos) {
    const int error = try_file(below(directory, name));
    return error == 0 ? ProgramCheck{} : explain_exec_error(name, error);
  }
  int best = ENOENT;
  std::string_view rest = search_path;
  while (true) {
    const std::size_t colon = rest.find(':');
    const std::string folder(rest.substr(0, colon));
    const int error = try_file(below(directory, (folder.empty() ? "." : folder) + "/" + name));
    if (error == 0) return {};
    if (error == EACCES) best = EACCES;
    if (colon == std::string_view::npos) break;
    rest = rest.substr(colon + 1);
  }
  return explain_exec_error(name, best);
}

}  // namespace kolo::internal
