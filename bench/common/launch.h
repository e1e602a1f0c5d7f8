// Jobs of other programs: started, waited for within a limit, and never left behind.
// Everything here belongs to one thread. The programs stay in our process group, so that Ctrl-C
// reaches them too.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kolo::bench {

using Command = std::vector<std::string>;

// A folder of our own that is gone with its owner.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& program);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Where this program's file is: its fellows lie beside it.
std::filesystem::path own_folder();
bool is_program(const std::filesystem::path& path);
// MPICH's launcher, in the folders where Debian has it; empty: not there.
std::string find_mpiexec();

// Runs the commands side by side with their output in the file `log`. Empty if all ended well
// within the limit; otherwise what went wrong, with the end of their output. When one fails or the
// time is up, the others are asked to go, then killed.
std::string run_to_end(const std::vector<Command>& commands, const std::filesystem::path& log,
                       std::chrono::milliseconds limit);

// A file of one JSON object a line; empty if it does not exist.
std::vector<nlohmann::json> read_json_lines(const std::filesystem::path& path);

}  // namespace kolo::bench
