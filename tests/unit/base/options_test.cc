// The option table, its bounds, and how a rank is found in the environment.
#include "base/options.h"

#include <cstdlib>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

extern char** environ;  // NOLINT: POSIX's

namespace kolo::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class OptionsTest : public testing::Test {
 protected:
  // Each case runs in a process of one thread; it starts without any launcher's variables.
  void SetUp() override { clearenv(); }

  Status load() {
    unknown_.clear();
    return config_.load_environment(unknown_);
  }
  static void put(const char* name, const char* value) { setenv(name, value, 1); }

  Config config_;
  std::vector<std::string> unknown_;
};

TEST_F(OptionsTest, EveryDefaultObeysItsOwnRow) {
  ASSERT_GE(Config::table().size(), 27u);
  for (const OptionRow& row : Config::table()) {
    EXPECT_FALSE(row.help.empty()) << row.key;
    Config config;
    EXPECT_FALSE(config.is_set(row.key)) << row.key;
    const Status status = config.set(row.key, row.default_value);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_EQ(config.text(row.key), row.default_value) << row.key;
  }
}

TEST_F(OptionsTest, IntegersAreCheckedAgainstTheirBounds) {
  for (const OptionRow& row : Config::table()) {
    if (row.type != OptionRow::Type::kInteger) continue;
    Config config;
    EXPECT_TRUE(config.set(row.key, std::to_string(row.min)).is_ok()) << row.key;
    EXPECT_TRUE(config.set(row.key, std::to_string(row.max)).is_ok()) << row.key;
    EXPECT_EQ(config.integer(row.key), row.max);
    for (const std::string& bad : {std::to_string(row.min - 1), std::to_string(row.max + 1)}) {
      const Status status = config.set(row.key, bad);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << row.key;
      EXPECT_THAT(status.text(), HasSubstr(std::string(row.key) + " = \"" + bad + "\""));
      EXPECT_THAT(status.text(), HasSubstr("config_set"));
      EXPECT_THAT(status.text(),
                  HasSubstr(std::to_string(row.min) + " to " + std::to_string(row.max)));
    }
    EXPECT_EQ(config.integer(row.key), row.max) << "a refused value must change nothing";
  }
}

TEST_F(OptionsTest, MalformedIntegersAreRefused) {
  for (const char* bad : {"", " ", "12 ", " 12", "+12", "12k", "0x10", "1.5", "abc",
                          "99999999999999999999", "-", "1\n"}) {
    EXPECT_EQ(config_.set("streams", bad).code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST_F(OptionsTest, ChoicesAndFlags) {
  EXPECT_TRUE(config_.set("algorithm", "ring").is_ok());
  for (const char* bad : {"", "rin", "ring|direct", "Ring", "|"}) {
    EXPECT_THAT(config_.set("algorithm", bad).text(), HasSubstr("auto|oneshot|direct|ring"));
  }
  EXPECT_EQ(config_.text("algorithm"), "ring");
  EXPECT_TRUE(config_.set("notice", "off").is_ok());
  EXPECT_FALSE(config_.flag("notice"));
  EXPECT_TRUE(config_.set("notice", "true").is_ok());
  EXPECT_TRUE(config_.flag("notice"));
  EXPECT_FALSE(config_.set("notice", "2").is_ok());
}

TEST_F(OptionsTest, RendezvousAndSecretHaveAForm) {
  for (const char* good : {"", "host:1", "10.0.0.1:65535", "[::1]:4000", "a.b:0"}) {
    EXPECT_TRUE(config_.set("rendezvous", good).is_ok()) << good;
  }
  for (const char* bad : {"host", ":1", "host:", "host:65536", "host:x"}) {
    EXPECT_FALSE(config_.set("rendezvous", bad).is_ok()) << bad;
  }
  const Status status = config_.set("secret", "tooshort");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.text(), testing::Not(HasSubstr("tooshort")));
}

TEST_F(OptionsTest, UnknownKeyIsAnErrorThatSuggestsTheNearest) {
  const Status status = config_.set("fusion_treshold_bytes", "0");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.text(), HasSubstr("\"fusion_treshold_bytes\""));
  EXPECT_THAT(status.text(), HasSubstr("did you mean \"fusion_threshold_bytes\""));
  EXPECT_EQ(config_.set(std::string(1 << 20, 'x'), "0").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(config_.set("", "0").code(), StatusCode::kInvalidArgument);
}

TEST_F(OptionsTest, SetWinsOverEnvironmentWinsOverDefault) {
  EXPECT_EQ(config_.integer("streams"), 2);
  put("KOLO_STREAMS", "5");
  ASSERT_TRUE(load().is_ok());
  EXPECT_EQ(config_.integer("streams"), 5);
  ASSERT_TRUE(config_.set("streams", "7").is_ok());
  EXPECT_EQ(config_.integer("streams"), 7);
  ASSERT_TRUE(load().is_ok());
  EXPECT_EQ(config_.integer("streams"), 7);
}

TEST_F(OptionsTest, EnvironmentErrorNamesTheVariable) {
  put("KOLO_STREAMS", "many");
  const Status status = load();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.text(), HasSubstr("environment variable KOLO_STREAMS"));
  EXPECT_THAT(status.text(), HasSubstr("\"many\""));
}

TEST_F(OptionsTest, UnknownVariablesAreListedNotRefused) {
  put("KOLO_ZEBRA", "1");
  put("KOLO_FUSION", "1");
  put("KOLO_TEST_LONG", "1");
  put("KOLOSSAL", "1");
  put("KOLO_STREAMS", "3");
  ASSERT_TRUE(load().is_ok());
  EXPECT_THAT(unknown_, ElementsAre("KOLO_FUSION", "KOLO_ZEBRA"));
}

TEST_F(OptionsTest, NothingSetIsAJobOfOne) {
  ASSERT_TRUE(load().is_ok());
  EXPECT_EQ(config_.integer("rank"), 0);
  EXPECT_EQ(config_.integer("size"), 1);
  EXPECT_FALSE(config_.is_set("rank"));
  EXPECT_THAT(unknown_, IsEmpty());
}

TEST_F(OptionsTest, HalfOfKolosFamilyIsAnError) {
  for (const char* name : {"KOLO_RANK", "KOLO_SIZE"}) {
    clearenv();
    put(name, name[5] == 'R' ? "0" : "2");
    const Status status = load();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(status.text(), HasSubstr("KOLO_RANK"));
    EXPECT_THAT(status.text(), HasSubstr("KOLO_SIZE"));
  }
  clearenv();
  put("KOLO_RANK", "1");
  put("KOLO_SIZE", "2");
  put("KOLO_LOCAL_RANK", "1");
  EXPECT_EQ(load().code(), StatusCode::kInvalidArgument) << "a local rank without its size";
}

TEST_F(OptionsTest, ARankMustBeBelowItsSize) {
  put("KOLO_RANK", "2");
  put("KOLO_SIZE", "2");
  const Status status = load();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.text(), HasSubstr("rank = 2 must be less than size = 2"));
  put("KOLO_RANK", "1");
  EXPECT_TRUE(load().is_ok());
  put("KOLO_LOCAL_RANK", "0");
  put("KOLO_LOCAL_SIZE", "3");
  EXPECT_THAT(load().text(), HasSubstr("local_size = 3"));
}

TEST_F(OptionsTest, TorchrunsFamilyIsRead) {
  put("RANK", "3");
  put("WORLD_SIZE", "4");
  put("LOCAL_RANK", "1");
  put("LOCAL_WORLD_SIZE", "2");
  put("MASTER_ADDR", "fd00::1");
  put("MASTER_PORT", "29500");
  ASSERT_TRUE(load().is_ok());
  EXPECT_EQ(config_.integer("rank"), 3);
  EXPECT_EQ(config_.integer("size"), 4);
  EXPECT_EQ(config_.integer("local_rank"), 1);
  EXPECT_EQ(config_.integer("local_size"), 2);
  EXPECT_EQ(config_.text("rendezvous"), "[fd00::1]:29500");
}

TEST_F(OptionsTest, KolosFamilyWinsOverEveryOther) {
  put("RANK", "3");
  put("PMI_RANK", "3");
  put("PMI_SIZE", "4");
  put("KOLO_RANK", "1");
  put("KOLO_SIZE", "2");
  ASSERT_TRUE(load().is_ok());
  EXPECT_EQ(config_.integer("rank"), 1);
  EXPECT_EQ(config_.integer("size"), 2);
}

TEST_F(OptionsTest, RankAndSizeSetByKeyNeedNoFamily) {
  put("PMI_RANK", "3");
  put("PMI_SIZE", "4");
  ASSERT_TRUE(config_.set("rank", "1").is_ok());
  ASSERT_TRUE(config_.set("size", "2").is_ok());
  ASSERT_TRUE(load().is_ok());
  EXPECT_EQ(config_.integer("rank"), 1);
}

TEST_F(OptionsTest, HalfOfTorchrunsFamilyIsAnError) {
  put("RANK", "0");
  EXPECT_THAT(load().text(), HasSubstr("WORLD_SIZE is missing"));
  clearenv();
  put("WORLD_SIZE", "2");
  EXPECT_THAT(load().text(), HasSubstr("RANK is missing"));
  clearenv();
  put("RANK", "0");
  put("WORLD_SIZE", "2");
  put("MASTER_ADDR", "host");
  EXPECT_THAT(load().text(), HasSubstr("MASTER_PORT is missing"));
  put("MASTER_PORT", "x");
  EXPECT_THAT(load().text(), HasSubstr("MASTER_PORT"));
  clearenv();
  put("RANK", "two");
  put("WORLD_SIZE", "2");
  EXPECT_THAT(load().text(), HasSubstr("environment variable RANK"));
}

TEST_F(OptionsTest, AnMpiLaunchersFamilyGivesRankSizeAndMeetingPlace) {
  put("PMI_RANK", "3");
  put("PMI_SIZE", "4");
  put("PMI_FD", "6");
  ASSERT_TRUE(load().is_ok());
  EXPECT_EQ(config_.integer("rank"), 3);
  EXPECT_EQ(config_.integer("size"), 4);
  EXPECT_EQ(config_.text("rendezvous"), "pmi:6");
  EXPECT_EQ(config_.text("launcher"), "pmi");
  put("KOLO_RENDEZVOUS", "host:5");  // of the user's own: then rank 0 serves it
  ASSERT_TRUE(load().is_ok());
  EXPECT_EQ(config_.text("rendezvous"), "host:5");
  EXPECT_FALSE(config_.is_set("launcher"));
  clearenv();
  put("PMI_RANK", "3");
  put("PMI_SIZE", "4");
  put("PMI_FD", "six");
  EXPECT_THAT(load().text(), HasSubstr("PMI_FD"));
  put("PMI_FD", "6");
  put("PMI_SIZE", "3");
  EXPECT_THAT(load().text(), HasSubstr("must be less than size"));
}

TEST_F(OptionsTest, AnotherLaunchersRanksAreNeverAJobOfOne) {
  const char* families[][2] = {{"PMI_RANK", "PMI_SIZE"},
                               {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                               {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                               {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
  for (const auto& [rank, size] : families) {
    clearenv();
    put(rank, "0");
    put(size, "1");
    EXPECT_TRUE(load().is_ok()) << rank;
    put(size, "4");
    const Status status = load();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << rank;
    EXPECT_THAT(status.text(), HasSubstr(rank));
    EXPECT_THAT(status.text(), HasSubstr("kolorun"));
  }
  for (const auto& [rank, size] : families) {  // a family that is not complete
    clearenv();
    put(size, "4");
    const Status status = load();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << size;
    EXPECT_THAT(status.text(), HasSubstr(rank));
  }
  clearenv();
  put("SLURM_PROCID", "0");
  put("SLURM_NTASKS", "8");
  EXPECT_TRUE(load().is_ok()) << "a batch script is one process";
}

TEST_F(OptionsTest, WhatIsForgottenWasNeverSet) {
  put("KOLO_SECRET", "a secret of sufficient length");
  ASSERT_TRUE(load().is_ok());
  ASSERT_TRUE(config_.set("secret", "another one of such length").is_ok());
  config_.forget("secret");
  EXPECT_FALSE(config_.is_set("secret"));
  EXPECT_EQ(config_.text("secret"), "");
}

TEST_F(OptionsTest, AnEmptyVariableOfANumberCountsAsAbsent) {
  put("KOLO_STREAMS", "");
  ASSERT_TRUE(load().is_ok());
  EXPECT_EQ(config_.integer("streams"), 2);
}

// docs/options.md is checked against the table: one row of it per option, word for word.
std::string documented(const OptionRow& row) {
  std::string values;
  switch (row.type) {
    case OptionRow::Type::kInteger:
      values = std::to_string(row.min) + " to " + std::to_string(row.max);
      break;
    case OptionRow::Type::kFlag: values = "0, 1"; break;
    case OptionRow::Type::kText: values = "text"; break;
    case OptionRow::Type::kChoice:
      for (const char c : row.choices) values += c == '|' ? std::string(", ") : std::string(1, c);
      break;
  }
  return "| `" + std::string(row.key) + "` | " + std::string(row.default_value) + " | " + values +
         " | " + std::string(row.help) + " |\n";
}

TEST(OptionsPageTest, EveryRowIsDocumentedWordForWord) {
  std::ifstream file(KOLO_OPTIONS_PAGE);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const OptionRow& row : Config::table()) EXPECT_THAT(page, HasSubstr(documented(row)));
}

}  // namespace
}  // namespace kolo::internal
