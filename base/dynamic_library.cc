#include "base/dynamic_library.h"

#include <dlfcn.h>
#include <link.h>

#include <mutex>
#include <utility>

namespace kolo::internal {
namespace {

std::string file_of(void* handle, const std::string& path) {
  link_map* map = nullptr;
  const bool is_known = ::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr &&
                        map->l_name != nullptr && *map->l_name != '\0';
  return is_known ? map->l_name : path;
}

}  // namespace

// RTLD_LOCAL: the library's names must not get between the program and other libraries.
Result<DynamicLibrary> DynamicLibrary::open(const std::vector<Candidate>& candidates) {
  return open_by(candidates, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

Result<DynamicLibrary> DynamicLibrary::peek(const std::vector<Candidate>& candidates) {
  return open_by(candidates, RTLD_NOW | RTLD_LOCAL);
}

void DynamicLibrary::close() {
  if (handle_ != nullptr) ::dlclose(std::exchange(handle_, nullptr));
}

Result<DynamicLibrary> DynamicLibrary::open_by(const std::vector<Candidate>& candidates,
                                               int flags) {
  // What dlopen() finds out about a library is read here, outside of its own lock.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  std::string tried;
  for (const Candidate& candidate : candidates) {
    const int loading = candidate.only_if_loaded ? RTLD_NOLOAD : 0;
    if (void* handle = ::dlopen(candidate.path.c_str(), flags | loading)) {
      DynamicLibrary library(handle);
      library.path_ = file_of(handle, candidate.path);
      return library;
    }
    const char* why = ::dlerror();
    if (candidate.only_if_loaded) continue;
    tried += (tried.empty() ? "" : "; ") + (why == nullptr ? candidate.path : std::string(why));
  }
  return Status(StatusCode::kUnsupported, std::move(tried));
}

bool DynamicLibrary::is_loaded(const char* soname) {
  void* handle = ::dlopen(soname, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (handle == nullptr) {
    static_cast<void>(::dlerror());
    return false;
  }
  ::dlclose(handle);  // only the reference taken here
  return true;
}

void* DynamicLibrary::address_of(const char* name) const { return ::dlsym(handle_, name); }

std::string folder_of_code(const void* code) {
  Dl_info info{};
  if (::dladdr(code, &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string path = info.dli_fname;
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

}  // namespace kolo::internal
