#include "launcher/check_build.h"

#include <algorithm>
#include <boost/property_tree/json_parser.hpp>
#include <boost/version.hpp>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/dynamic_library.h"
#include "base/options.h"
#include "base/types.h"
#include "transport/rendezvous/agent_codec.h"
#include "transport/rendezvous/rendezvous.h"

namespace kolo::internal {
namespace {

std::string choices_of(std::string_view key) {
  for (const OptionRow& row : Config::table()) {
    if (row.key != key) continue;
    std::string names(row.choices);
    for (std::size_t at = 0; (at = names.find('|', at)) != std::string::npos;) {
      names.replace(at, 1, ", ");
    }
    return names;
  }
  return "";
}

// Where libkolo.so and its modules lie: beside this program, or in the lib folder beside its own.
std::vector<std::filesystem::path> library_folders() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path folder = self.parent_path();
  return {folder, folder / "../lib", folder / "../lib/x86_64-linux-gnu"};
}

std::string mpi_note() {
  constexpr const char* kModule = "libkolo-mpi-mpich.so";
  std::error_code error;
  for (const auto& folder : library_folders()) {
    if (std::filesystem::exists(folder / kModule, error)) return "";
  }
  return std::string(" (no ") + kModule + " is found, so not those with mpi)";
}

// What the library itself says of this machine; empty if there is no library.
boost::property_tree::ptree library_info() {
  constexpr char kLibrary[] = "libkolo.so.0";
  std::vector<DynamicLibrary::Candidate> files;
  for (const auto& folder : library_folders()) files.push_back({folder / kLibrary});
  files.push_back({kLibrary});
  boost::property_tree::ptree info;
  const auto library = DynamicLibrary::open(files);
  if (!library) return info;
  auto* build_info = library->find<const char*()>("kolo_build_info");
  if (build_info == nullptr) return info;
  std::istringstream text(build_info());
  try {
    boost::property_tree::read_json(text, info);
  } catch (const boost::property_tree::json_parser_error&) {
    info.clear();
  }
  return info;
}

// "13.0, /usr/lib/libcudart.so.13", or why not, and the cure.
std::string found_text(const boost::property_tree::ptree& info, const std::string& name) {
  const auto row = info.get_child_optional(name);
  if (!row) return "not known: libkolo.so.0 is not found beside kolorun; reinstall kolo";
  if (!row->get("found", false)) return "no: " + row->get("why", std::string());
  std::string text = row->get("version", std::string()) + ", " + row->get("path", std::string());
  if (row->count("driver") == 0) return text;
  const auto driver = row->get("driver", std::string("null"));
  return text + "; kernels " + row->get("kernels", std::string()) +
         (driver == "null" ? "; no driver is seen: install NVIDIA's on this host" : "; " + driver);
}

}  // namespace

std::string check_build_text() {
  std::string types;
  std::string ops;
  for (int i = 0; i < kDataTypeCount; ++i) {
    types += (i == 0 ? "" : ", ") + std::string(data_type_name(static_cast<DataType>(i)));
  }
  for (int i = 0; i < kReduceOpCount; ++i) {
    ops += (i == 0 ? "" : ", ") + std::string(reduce_op_name(static_cast<ReduceOp>(i)));
  }
  ops += ", " + std::string(reduce_op_name(ReduceOp::kAdasum));
  const auto row = [](std::string name, const std::string& value) {
    name.resize(14, ' ');
    return "  " + name + value + "\n";
  };
  const boost::property_tree::ptree info = library_info();
  return "kolo " KOLO_VERSION "\n" + row("transports", choices_of("transport") + mpi_note()) +
         row("cuda", found_text(info, "cuda")) + row("nccl", found_text(info, "nccl")) +
         row("algorithms", choices_of("algorithm")) + row("data types", types) +
         row("operators", ops) + row("launchers", "fork, ssh, any other by --launcher-exec") +
         row("protocols", "ranks " + std::to_string(kProtocolVersion) + ", agents " +
                              std::to_string(kAgentProtocolVersion)) +
         row("protobuf", protobuf_version()) +
         row("boost", std::to_string(BOOST_VERSION / 100000) + "." +
                          std::to_string(BOOST_VERSION / 100 % 1000) + "." +
                          std::to_string(BOOST_VERSION % 100)) +
         row("compiler", "g++ " __VERSION__);
}

}  // namespace kolo::internal
