#include "ops/nccl/library.h"

#include <utility>
#include <vector>

#include "base/dynamic_library.h"
#include "ops/cuda/binding.h"

namespace kolo::internal::nccl {
namespace {

constexpr char kLibraryName[] = "libnccl.so.2";

Status unsupported(std::string text) { return {StatusCode::kUnsupported, std::move(text)}; }

std::vector<DynamicLibrary::Candidate> candidates(const Config& config) {
  if (std::string path = config.text("nccl_path"); !path.empty()) return {{std::move(path)}};
  const std::string home = Config::cuda_home();
  return {{kLibraryName, true},
          {kLibraryName},
          {home + "/lib64/" + kLibraryName},
          {home + "/lib/" + kLibraryName}};
}

}  // namespace

Result<std::unique_ptr<const Library>> Library::load(const Config& config) {
  KOLO_RETURN_IF_ERROR(cuda::check_cuda_wanted(config, "NCCL"));
  auto file = DynamicLibrary::open(candidates(config));
  if (!file) {
    return unsupported("NCCL: no library is found (" + file.status().text() +
                       "); install NCCL of version " + version_text(kOldestLibrary) +
                       " or newer, or say by KOLO_NCCL_PATH where libnccl.so.2 is");
  }
  std::unique_ptr<Library> library(new Library);
  library->path_ = file->path();
  std::string missing;
#define KOLO_REQUIRED(result, name, parameters) \
  if (!cuda::bind(*file, #name, library->name)) cuda::append_name(missing, #name);
#define KOLO_OPTIONAL(result, name, parameters) \
  static_cast<void>(cuda::bind(*file, #name, library->name));
  KOLO_NCCL_FUNCTIONS(KOLO_REQUIRED, KOLO_OPTIONAL)
#undef KOLO_REQUIRED
#undef KOLO_OPTIONAL
  if (missing.empty() && library->ncclGetVersion(&library->version_) != kSuccess) {
    library->version_ = 0;
  }
  if (missing.empty() && library->version_ >= kOldestLibrary) {
    return std::unique_ptr<const Library>(std::move(library));
  }
  return unsupported(
      "NCCL: " + file->path() + " is not NCCL of version " + version_text(kOldestLibrary) +
      " or newer (" +
      (missing.empty() ? "it is " + version_text(library->version_) : "it lacks " + missing) +
      "); install a newer one, or name one by KOLO_NCCL_PATH");
}

Status Library::status_of(Error error, std::string_view what, CommHandle comm) const {
  if (error == kSuccess) return Status::ok();
  const char* words = ncclGetErrorString(error);
  const char* last = ncclGetLastError(comm);
  std::string text = std::string(what) + " failed: " + (words ? words : "no words") + " (" +
                     std::to_string(error) + ")";
  if (last != nullptr && *last != '\0') text += "; NCCL's last words: " + std::string(last);
  switch (error) {
    case kInvalidArgument:
    case kInvalidUsage: return invalid_argument(std::move(text));
    default: return {StatusCode::kNcclError, std::move(text)};
  }
}

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace kolo::internal::nccl
