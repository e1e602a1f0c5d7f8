#include "transport/mpi/mpi_world.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <type_traits>
#include <utility>

#include "base/dynamic_library.h"

namespace kolo::internal {
namespace {

constexpr char kModuleName[] = "libkolo-mpi-mpich.so";
constexpr char kCure[] =
    "start the job with kolorun --transport mpi or MPICH's mpiexec.hydra (Debian package mpich), "
    "or take another KOLO_TRANSPORT";

// Beside libkolo.so; for programs with kolo inside, in the lib folder beside theirs; then wherever
// the system looks.
std::vector<std::string> candidates(const std::string& module_path) {
  if (!module_path.empty()) return {module_path};
  const std::string folder = folder_of_code(kModuleName);
  if (folder.empty()) return {kModuleName};
  return {folder + kModuleName, folder + "../lib/" + kModuleName, kModuleName};
}

Result<const kolo_mpi_module_table*> open_module(const std::string& module_path) {
  if (::dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world") != nullptr) {
    // Its functions carry the names that the module looks for, and come first.
    return Status(
        StatusCode::kUnsupported,
        "transport mpi: this process has Open MPI loaded, and kolo's module is for MPICH; "
        "link the program with MPICH, or take another KOLO_TRANSPORT");
  }
  std::vector<DynamicLibrary::Candidate> files;
  for (std::string& path : candidates(module_path)) files.push_back({std::move(path)});
  auto module = DynamicLibrary::open(files);
  if (!module) {
    return Status(StatusCode::kUnsupported,
                  "transport mpi: cannot load " + std::string(kModuleName) + " (" +
                      module.status().text() +
                      "); install MPICH (Debian packages mpich and libmpich-dev) and build kolo "
                      "with KOLO_WITH_MPI=ON, or take another KOLO_TRANSPORT");
  }
  auto* symbol =
      module->find<std::remove_pointer_t<kolo_mpi_module_function>>(KOLO_MPI_MODULE_SYMBOL);
  if (symbol == nullptr) {
    return Status(StatusCode::kUnsupported,
                  "transport mpi: " + module->path() + " is no module of kolo; reinstall kolo");
  }
  const auto* table = symbol();
  if (table->abi != KOLO_MPI_MODULE_ABI || table->struct_bytes != sizeof *table) {
    return Status(StatusCode::kUnsupported,
                  "transport mpi: " + module->path() + " is of another version of kolo (" +
                      std::to_string(table->abi) + ", needed is " +
                      std::to_string(KOLO_MPI_MODULE_ABI) + "); install both from one build");
  }
  return table;
}

}  // namespace

std::string find_mpi_module() {
  for (const std::string& path : candidates("")) {
    if (path.find('/') != std::string::npos && ::access(path.c_str(), R_OK) == 0) return path;
  }
  return "";
}

Result<std::shared_ptr<MpiWorld>> MpiWorld::start(int rank, int size,
                                                  const std::string& module_path) {
  auto table = open_module(module_path);
  if (!table) return table.status();
  std::shared_ptr<MpiWorld> world(std::unique_ptr<MpiWorld>(new MpiWorld(**table)));
  KOLO_RETURN_IF_ERROR(world->check_start(world->calls_.start(&world->world_)));
  KOLO_RETURN_IF_ERROR(world->check_place(rank, size));
  return world;
}

MpiWorld::~MpiWorld() {
  if (!usable()) return;
  bool all_ended = true;
  for (Orphan& orphan : orphans_) {
    if (has_ended(orphan)) continue;
    all_ended = false;
    // For ever: MPI may still write there.
    static_cast<void>(std::make_unique<std::shared_ptr<std::byte[]>>(orphan.memory).release());
  }
  if (has_communicator_ && all_ended && !forsaken_) calls_.release(communicator_);
}

// By itself, or by being cancelled now.
bool MpiWorld::has_ended(Orphan& orphan) const {
  int done = 0;
  if (calls_.test(&orphan.request, &done, nullptr) != 0 || done != 0) return true;
  static_cast<void>(calls_.cancel(&orphan.request));
  return calls_.test(&orphan.request, &done, nullptr) != 0 || done != 0;
}

Status MpiWorld::duplicate() {
  if (const int error = calls_.duplicate(&communicator_); error != 0) {
    return resource_error("transport mpi: MPI gives no communicator: " + words_of(error));
  }
  has_communicator_ = true;
  return Status::ok();
}

Status MpiWorld::check_start(int result) const {
  constexpr std::array kLevels = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED",
                                  "MPI_THREAD_SERIALIZED"};
  switch (result) {
    case KOLO_MPI_READY: return Status::ok();
    case KOLO_MPI_TOO_LOW: {
      const auto level = static_cast<std::size_t>(world_.thread_level);
      return invalid_argument(
          std::string("transport mpi: this program has initialised MPI with ") +
          (level < kLevels.size() ? kLevels[level] : "an unknown thread level") +
          ", and kolo's own thread uses MPI too; call MPI_Init_thread(MPI_THREAD_MULTIPLE) before "
          "kolo_init, or leave it to kolo_init to initialise MPI");
    }
    case KOLO_MPI_FINALIZED:
      return invalid_argument(
          "transport mpi: MPI_Finalize has been called in this process, and MPI cannot come back; "
          "call kolo_init before it, or take another KOLO_TRANSPORT");
    default:
      return resource_error("transport mpi: MPI_Init_thread failed: " + words_of(world_.error));
  }
}

Status MpiWorld::check_place(int rank, int size) const {
  if (world_.size != size) {
    return invalid_argument("transport mpi: this job has " + std::to_string(size) +
                            " ranks, and MPI's world has " + std::to_string(world_.size) + " (" +
                            version() + "): the ranks were not started by that MPI's launcher; " +
                            kCure);
  }
  if (world_.rank != rank) {
    return invalid_argument("transport mpi: this is rank " + std::to_string(rank) +
                            " of the job and rank " + std::to_string(world_.rank) +
                            " of MPI's world (" + version() + "); " + kCure);
  }
  return Status::ok();
}

std::string MpiWorld::version() const {
  std::array<char, 256> text{};
  calls_.version(text.data(), static_cast<int>(text.size()));
  return text.data();
}

std::string MpiWorld::words_of(int error) const {
  std::array<char, 512> text{};
  calls_.describe(error, text.data(), static_cast<int>(text.size()));
  return text.data();
}

void MpiWorld::adopt(kolo_mpi_handle request, std::shared_ptr<std::byte[]> memory) {
  orphans_.push_back({request, std::move(memory)});
}

}  // namespace kolo::internal
