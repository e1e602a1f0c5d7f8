// DynamicLibrary: a shared library that is opened at run time, because it is not there everywhere.
//
// Not closed, as a rule: libraries of drivers and of MPI leave threads and exit handlers behind. A
// plain value, free to copy; any thread.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "base/status.h"

namespace kolo::internal {

class DynamicLibrary {
 public:
  struct Candidate {
    std::string path;  // or a bare soname: wherever the system looks
    bool only_if_loaded = false;
  };

  // The first of `candidates` that opens. UNSUPPORTED with the loader's own words for each.
  static Result<DynamicLibrary> open(const std::vector<Candidate>& candidates);
  // The same for a short look: the caller ends it by close(), and none of the library's functions
  // may have done more than to say a version.
  static Result<DynamicLibrary> peek(const std::vector<Candidate>& candidates);
  void close();
  static bool is_loaded(const char* soname);  // in this process, by anybody

  // Null if the library has no function of this name.
  template <typename Function>
  requires std::is_function_v<Function>
  [[nodiscard]] Function* find(const char* name) const {
    return reinterpret_cast<Function*>(address_of(name));
  }
  // The file that was opened.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  explicit DynamicLibrary(void* handle) : handle_(handle) {}
  static Result<DynamicLibrary> open_by(const std::vector<Candidate>& candidates, int flags);
  [[nodiscard]] void* address_of(const char* name) const;

  void* handle_;
  std::string path_;
};

// The folder of the shared library or program that holds `code`, with a slash; empty if unknown.
[[nodiscard]] std::string folder_of_code(const void* code);

}  // namespace kolo::internal
