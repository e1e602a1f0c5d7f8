#include "ops/cuda/runtime.h"

#include <link.h>

#include <utility>
#include <vector>

#include "base/dynamic_library.h"
#include "ops/cuda/binding.h"

namespace kolo::internal::cuda {
namespace {

constexpr char kDriverName[] = "libcuda.so.1";

Status unsupported(std::string text) { return {StatusCode::kUnsupported, std::move(text)}; }

std::vector<DynamicLibrary::Candidate> candidates(const Config& config) {
  if (std::string path = config.text("cudart_path"); !path.empty()) return {{std::move(path)}};
  std::vector<DynamicLibrary::Candidate> files;
  for (const char* name : kRuntimeNames) files.push_back({name, true});
  for (const char* name : kRuntimeNames) files.push_back({name});
  for (const char* name : kRuntimeNames) files.push_back({Config::cuda_home() + "/lib64/" + name});
  return files;
}

Status not_found(const Status& tried) {
  return unsupported("CUDA: no runtime library is found (" + tried.text() +
                     "); install CUDA's runtime of version " + version_text(kOldestRuntime) +
                     " or newer, or say by KOLO_CUDART_PATH where libcudart is");
}

// How many objects this process has ever loaded; a lock and one call, whatever their number.
unsigned long long count_objects_loaded() {
  unsigned long long count = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        *static_cast<unsigned long long*>(result) = info->dlpi_adds;
        return 1;
      },
      &count);
  return count;
}

}  // namespace

Status check_cuda_wanted(const Config& config, const char* library) {
  if (!kIsBuilt) {
    return unsupported(std::string(library) +
                       ": this kolo was built without GPUs; build it with KOLO_WITH_CUDA=AUTO");
  }
  if (config.text("cuda") == "off") {
    return unsupported(std::string(library) +
                       ": the option cuda is off (KOLO_CUDA=off); set it to auto");
  }
  return Status::ok();
}

Result<std::unique_ptr<const Runtime>> Runtime::load(const Config& config) {
  KOLO_RETURN_IF_ERROR(check_cuda_wanted(config, "CUDA"));
  auto library = DynamicLibrary::open(candidates(config));
  return library ? from(*library) : not_found(library.status());
}

// What was loaded for the look goes again: else host memory would be asked for its device from now
// on, in a program that has nothing to do with CUDA.
Result<Runtime::Found> Runtime::look(const Config& config) {
  KOLO_RETURN_IF_ERROR(check_cuda_wanted(config, "CUDA"));
  auto library = DynamicLibrary::peek(candidates(config));
  if (!library) return not_found(library.status());
  Result<Found> found = Found();
  if (auto runtime = from(*library)) {
    found = Found{(*runtime)->path(), (*runtime)->version()};
  } else {
    found = runtime.status();
  }
  library->close();
  return found;
}

Result<std::unique_ptr<const Runtime>> Runtime::from(const DynamicLibrary& library) {
  std::unique_ptr<Runtime> runtime(new Runtime);
  runtime->path_ = library.path();
  std::string missing;
#define KOLO_REQUIRED(result, name, parameters) \
  if (!bind(library, #name, runtime->name)) append_name(missing, #name);
#define KOLO_OPTIONAL(result, name, parameters) \
  static_cast<void>(bind(library, #name, runtime->name));
  KOLO_CUDA_FUNCTIONS(KOLO_REQUIRED, KOLO_OPTIONAL)
#undef KOLO_REQUIRED
#undef KOLO_OPTIONAL
  if (missing.empty() && runtime->cudaRuntimeGetVersion(&runtime->version_) != kSuccess) {
    runtime->version_ = 0;
  }
  if (missing.empty() && runtime->version_ >= kOldestRuntime) {
    return std::unique_ptr<const Runtime>(std::move(runtime));
  }
  return unsupported(
      "CUDA: " + library.path() + " is not a CUDA runtime of version " +
      version_text(kOldestRuntime) + " or newer (" +
      (missing.empty() ? "it is " + version_text(runtime->version_) : "it lacks " + missing) +
      "); install a newer one, or name one by KOLO_CUDART_PATH");
}

int Runtime::driver_version() const {
  int version = 0;
  return cudaDriverGetVersion(&version) == kSuccess ? version : 0;
}

Result<int> Runtime::count_devices() const {
  int count = 0;
  const Error error = cudaGetDeviceCount(&count);
  if (error == kSuccess && count > 0) return count;
  static_cast<void>(cudaGetLastError());  // else the program's next look would find ours
  const std::string where = path_ + " (" + version_text(version_) + ")";
  const int driver = driver_version();
  if (error == kInsufficientDriver && driver == 0) {
    return unsupported("CUDA: " + where +
                       " finds no driver; install NVIDIA's driver on this host, or start the "
                       "container with its GPUs");
  }
  if (error == kInsufficientDriver) {
    return unsupported("CUDA: the driver is for CUDA " + version_text(driver) + ", and " + where +
                       " needs a newer one; update the driver, or name an older libcudart by "
                       "KOLO_CUDART_PATH");
  }
  if (error == kNoDevice || error == kSuccess) {
    return unsupported("CUDA: " + where +
                       " sees no device; look at nvidia-smi and at CUDA_VISIBLE_DEVICES");
  }
  return unsupported(status_of(error, "cudaGetDeviceCount of " + where).text());
}

Status Runtime::status_of(Error error, std::string_view what) const {
  if (error == kSuccess) return Status::ok();
  const char* name = cudaGetErrorName(error);
  const char* words = cudaGetErrorString(error);
  std::string text = std::string(what) + " failed: " + (words ? words : "no words") + " (" +
                     (name ? name : "unknown") + " " + std::to_string(error) + ")";
  switch (error) {
    case kMemoryAllocation:
      return resource_error(text + "; free some of that memory, or ask for less");
    case kInvalidValue:
    case kInvalidDevice: return invalid_argument(std::move(text));
    case kInsufficientDriver:
    case kNoDevice:
    case kNoKernelImage:
    case kNotSupported:
    case kCaptureUnsupported: return unsupported(std::move(text));
    default:
      return {StatusCode::kCudaError,
              text +
                  "; the cause may be an earlier kernel or copy of this process: "
                  "compute-sanitizer finds it"};
  }
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version / 10 % 100);
}

Presence::Presence(const Config& config) {
  if (!kIsBuilt || config.text("cuda") == "off") {
    state_ = State::kNever;
  } else if (!config.text("cudart_path").empty()) {
    state_ = State::kPresent;
  }
}

bool Presence::look() {
  const unsigned long long count = count_objects_loaded();
  if (count == objects_loaded_.load(std::memory_order_relaxed)) return false;
  for (const char* name : {kRuntimeNames[0], kRuntimeNames[1], kDriverName}) {
    if (!DynamicLibrary::is_loaded(name)) continue;
    state_.store(State::kPresent, std::memory_order_relaxed);
    return true;
  }
  // The count from before the look: what came during it is looked for again.
  objects_loaded_.store(count, std::memory_order_relaxed);
  return false;
}

}  // namespace kolo::internal::cuda
