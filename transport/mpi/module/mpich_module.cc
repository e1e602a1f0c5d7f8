// The MPICH module: the only code of kolo that includes mpi.h. See transport/mpi/mpi_module.h.
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "transport/mpi/mpi_module.h"

namespace {

static_assert(sizeof(MPI_Request) <= sizeof(kolo_mpi_handle));
static_assert(sizeof(MPI_Comm) <= sizeof(kolo_mpi_handle));

template <typename Handle>
kolo_mpi_handle packed(Handle handle) {
  kolo_mpi_handle result{};
  std::memcpy(&result, &handle, sizeof handle);
  return result;
}

template <typename Handle>
Handle unpacked(kolo_mpi_handle from) {
  Handle handle;
  std::memcpy(&handle, &from, sizeof handle);
  return handle;
}

void copy_text(const char* from, int bytes, char* text, int text_bytes) {
  if (text_bytes <= 0) return;
  const auto count = static_cast<std::size_t>(std::clamp(bytes, 0, text_bytes - 1));
  std::memcpy(text, from, count);
  text[count] = '\0';
}

int usable() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0 ? 1 : 0;
}

// As MPI is one per process, so is this.
std::atomic<int> communicators{0};

// Without it the launcher takes this process for a crashed one, and ends the others.
void finalize_at_exit() {
  if (communicators == 0 && usable() != 0) MPI_Finalize();
}

int start(kolo_mpi_world* world) {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized != 0) return KOLO_MPI_FINALIZED;
  if (initialized == 0) {
    world->error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &world->thread_level);
    if (world->error != MPI_SUCCESS) return KOLO_MPI_FAILED;
    std::atexit(finalize_at_exit);
  } else {
    MPI_Query_thread(&world->thread_level);
  }
  if (world->thread_level < MPI_THREAD_MULTIPLE) return KOLO_MPI_TOO_LOW;
  MPI_Comm_rank(MPI_COMM_WORLD, &world->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world->size);
  int found = 0;
  void* value = nullptr;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&value), &found);
  world->largest_tag = found != 0 ? *static_cast<const int*>(value) : 32767;  // MPI's least
  return KOLO_MPI_READY;
}

void version(char* text, int text_bytes) {
  char all[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int bytes = 0;
  MPI_Get_library_version(all, &bytes);
  std::string line(all, std::find(all, all + bytes, '\n'));
  std::replace(line.begin(), line.end(), '\t', ' ');
  copy_text(line.data(), static_cast<int>(line.size()), text, text_bytes);
}

void describe(int error, char* text, int text_bytes) {
  char all[MPI_MAX_ERROR_STRING] = "";
  int bytes = 0;
  if (usable() == 0) {
    std::strcpy(all, "MPI has been finalized");
    bytes = static_cast<int>(std::strlen(all));
  } else {
    MPI_Error_string(error, all, &bytes);
  }
  std::replace(all, all + bytes, '\n', ' ');
  copy_text(all, bytes, text, text_bytes);
}

int duplicate(kolo_mpi_handle* communicator) {
  MPI_Comm made = MPI_COMM_NULL;
  const int error = MPI_Comm_dup(MPI_COMM_WORLD, &made);
  if (error != MPI_SUCCESS) return error;
  ++communicators;
  *communicator = packed(made);
  return MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
}

int release(kolo_mpi_handle communicator) {
  if (usable() == 0) return MPI_SUCCESS;
  auto handle = unpacked<MPI_Comm>(communicator);
  --communicators;
  return MPI_Comm_free(&handle);
}

int isend(kolo_mpi_handle communicator, const void* data, int bytes, int peer, int tag,
          kolo_mpi_handle* request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int error =
      MPI_Isend(data, bytes, MPI_BYTE, peer, tag, unpacked<MPI_Comm>(communicator), &made);
  *request = packed(made);
  return error;
}

int irecv(kolo_mpi_handle communicator, void* data, int bytes, int peer, int tag,
          kolo_mpi_handle* request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int error =
      MPI_Irecv(data, bytes, MPI_BYTE, peer, tag, unpacked<MPI_Comm>(communicator), &made);
  *request = packed(made);
  return error;
}

int test(kolo_mpi_handle* request, int* done, int* bytes) {
  auto handle = unpacked<MPI_Request>(*request);
  MPI_Status status;
  const int error = MPI_Test(&handle, done, &status);
  *request = packed(handle);
  if (error != MPI_SUCCESS || *done == 0) return error;
  int cancelled = 0;
  MPI_Test_cancelled(&status, &cancelled);
  if (cancelled != 0) *done = -1;
  if (bytes != nullptr) MPI_Get_count(&status, MPI_BYTE, bytes);
  return MPI_SUCCESS;
}

int cancel(kolo_mpi_handle* request) {
  auto handle = unpacked<MPI_Request>(*request);
  const int error = MPI_Cancel(&handle);
  *request = packed(handle);
  return error;
}

constexpr kolo_mpi_module_table kTable = {
    KOLO_MPI_MODULE_ABI,
    sizeof(kolo_mpi_module_table),
    "MPICH",
    start,
    version,
    describe,
    duplicate,
    release,
    isend,
    irecv,
    test,
    cancel,
    usable,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const kolo_mpi_module_table* kolo_mpi_module() {
  return &kTable;
}
