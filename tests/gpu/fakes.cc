#include "tests/gpu/fakes.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace gpu_test {
namespace {

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return;
  std::fprintf(stderr, "the fake GPUs are not loaded: %s is missing\n", name);
  std::abort();
}

Fakes load() {
  const char* const path = std::getenv("KOLO_CUDART_PATH");
  void* const library = dlopen(path == nullptr ? "libcudart.so.13" : path, RTLD_NOW);
  Fakes fakes;
  find(library, "fakegpu_census", fakes.census);
  find(library, "fakegpu_calls", fakes.calls);
  find(library, "fakegpu_calls_of_this_thread", fakes.calls_of_this_thread);
  find(library, "fakegpu_host_waits", fakes.host_waits);
  find(library, "fakegpu_misuses", fakes.misuses);
  find(library, "fakegpu_misuse_text", fakes.misuse_text);
  find(library, "fakegpu_set_faults", fakes.set_faults);
  find(library, "fakegpu_creation_at", fakes.creation_at);
  find(library, "fakegpu_forget_creations", fakes.forget_creations);
  find(library, "fakegpu_peek", fakes.peek);
  find(library, "fakegpu_poke", fakes.poke);
  find(library, "fakegpu_hold", fakes.hold);
  find(library, "fakegpu_release", fakes.release);
  find(library, "cudaStreamBeginCapture", fakes.begin_capture);
  find(library, "cudaStreamEndCapture", fakes.end_capture);
  find(library, "cudaGraphDestroy", fakes.destroy_graph);
  return fakes;
}

}  // namespace

const Fakes& fakes() {
  static const Fakes once = load();
  return once;
}

kolo_status sum(kolo::Context& context, const std::string& name, const DeviceArray<float>& data,
                cuda::StreamHandle stream, kolo_request* request, std::int32_t pset) {
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = name.c_str();
  options.stream = stream;
  options.pset = pset;
  return kolo_allreduce(context.handle(), data.get(), data.get(), data.count(), KOLO_FLOAT32,
                        KOLO_SUM, &options, request);
}

}  // namespace gpu_test
