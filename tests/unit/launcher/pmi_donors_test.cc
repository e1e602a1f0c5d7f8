// What mpiexec's processes hand to the agent, and who wants that. (The rest: tests/multiproc/mpi.)
#include "launcher/pmi_donors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kolo::internal {
namespace {

using ::testing::ElementsAre;
using namespace std::string_literals;

TEST(PmiDonors, OnlyMpisOwnVariablesAreTaken) {
  const auto donation = read_donation(
      "PMI_RANK=2\0PMI_SIZE=4\0PMI_FD=9\0PATH=/bin\0MPI_LOCALRANKID=2\0HYDI_CONTROL_FD=7\0junk\0"s,
      4);
  ASSERT_TRUE(donation.is_ok()) << donation.status().to_string();
  EXPECT_EQ(donation->rank, 2);
  EXPECT_THAT(donation->variables, ElementsAre("PMI_RANK=2", "PMI_SIZE=4", "MPI_LOCALRANKID=2"));
  EXPECT_FALSE(donation->socket.is_open());
}

TEST(PmiDonors, WhoHasNoRankOfThisJobIsRefused) {
  for (const std::string& text : {""s, "PMI_SIZE=4\0"s, "PMI_RANK=4\0"s, "PMI_RANK=-1\0"s,
                                  "PMI_RANK=two\0"s, "PMI_RANK="s, "\0\0\0"s, "PMI_RANK"s}) {
    EXPECT_FALSE(read_donation(text, 4).is_ok()) << text;
  }
  EXPECT_TRUE(read_donation("PMI_RANK=3", 4).is_ok()) << "the last zero byte may be missing";
}

TEST(PmiDonors, AreWantedForTheRoadsWithMpi) {
  EXPECT_TRUE(wants_mpi({"KOLO_TRANSPORT=mpi"}));
  EXPECT_TRUE(wants_mpi({"A=1", "KOLO_TRANSPORT=shm+mpi"}));
  EXPECT_FALSE(wants_mpi({"KOLO_TRANSPORT=tcp"}));
  EXPECT_FALSE(wants_mpi({"KOLO_TRANSPORT=auto"}));
  EXPECT_FALSE(wants_mpi({}));
}

}  // namespace
}  // namespace kolo::internal
