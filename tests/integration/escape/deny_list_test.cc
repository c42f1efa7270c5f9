#include "integration/escape/deny_list.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace spillway::integration {
namespace {

std::string ErrorOf(std::string_view text) {
  DenyList list;
  return std::string(list.Add(text, "list").message());
}

TEST(DenyListTest, MatchesWholeNamesAndStars) {
  DenyList list;
  ASSERT_TRUE(
      list.Add("# head\n\n  exact  # why\nfront* \r\n\twith lib.so.1\nother lib*\n* all.so", "list").ok());
  EXPECT_EQ(list.entries().size(), 5u);
  EXPECT_NE(list.Match("exact", ""), nullptr);
  EXPECT_EQ(list.Match("exactly", ""), nullptr);
  EXPECT_EQ(list.Match("exac", ""), nullptr);
  EXPECT_NE(list.Match("front", "any.so"), nullptr);
  EXPECT_NE(list.Match("front_and_more", ""), nullptr);
  EXPECT_EQ(list.Match("with", ""), nullptr) << "the library is not known";
  EXPECT_NE(list.Match("with", "lib.so.1"), nullptr);
  EXPECT_EQ(list.Match("with", "lib.so.12"), nullptr);
  EXPECT_NE(list.Match("other", "lib.so.12"), nullptr);
  EXPECT_NE(list.Match("anything", "all.so"), nullptr);
  EXPECT_EQ(list.Match("anything", "one.so"), nullptr);
  EXPECT_EQ(list.Match("", ""), nullptr);
  EXPECT_TRUE(list.NamesLibraries());
  ASSERT_TRUE(list.Add("a*b*c\n*mid*\nlast*.so lib*.so", "list").ok());
  for (const char* name : {"abc", "a_b_c", "abbcc", "a_mid_b", "mid"})
    EXPECT_NE(list.Match(name, ""), nullptr) << name;
  for (const char* name : {"ab", "ac", "acb", "abcd", "mi_d"})
    EXPECT_EQ(list.Match(name, ""), nullptr) << name;
  EXPECT_NE(list.Match("last_one.so", "lib_1.so"), nullptr);
  EXPECT_EQ(list.Match("last_one.so", "lib.so.1"), nullptr);
  EXPECT_EQ(list.Match("exact", "")->origin, "list:3");
}

TEST(DenyListTest, RowsSayWhatIsDone) {
  DenyList list;
  ASSERT_TRUE(list.Add("old lib.so\nall action=everything\nwriter lib.so action=writer tables=5,7-9 # why\n"
                       "front action=writer fills=0 lib.so\nany action=writer\nno action=refuse\n",
                       "list")
                  .ok());
  using Action = DenyList::Action;
  using Tables = std::vector<uint32_t>;
  EXPECT_EQ(list.Match("old", "lib.so")->action, Action::kEverything);
  EXPECT_EQ(list.Match("all", "")->action, Action::kEverything);
  const DenyList::Entry* const writer = list.Match("writer", "lib.so");
  EXPECT_EQ(writer->action, Action::kWriter);
  EXPECT_EQ(writer->tables, (Tables{5, 7, 8, 9}));
  EXPECT_FALSE(writer->fills);
  EXPECT_EQ(list.Match("front", "lib.so")->tables, Tables{0});
  EXPECT_TRUE(list.Match("front", "lib.so")->fills);
  EXPECT_TRUE(list.Match("any", "")->tables.empty());
  EXPECT_EQ(list.Match("no", "")->action, Action::kRefuse);
}

TEST(DenyListTest, RefusesBadLinesWithPlaceAndWhatIsAccepted) {
  for (const char* bad :
       {"one two three", "na/me", "name /usr/lib.so", "con\x01trol", "name action=write",
        "name action=", "name acton=writer", "name tables=1", "name action=refuse tables=1",
        "name action=writer tables=", "name action=writer tables=1,", "name action=writer tables=3-1",
        "name action=writer tables=2,2", "name action=writer tables=1x", "name action=writer tables=-1",
        "name action=writer tables=99999", "name action=writer tables=1 fills=2",
        "name lib.so action=writer x"}) {
    const std::string error = ErrorOf(std::string("good\n# c\n") + bad + "\n");
    EXPECT_EQ(error.rfind("list:3: ", 0), 0u) << error;
    EXPECT_NE(error.find("expected: "), std::string::npos) << error;
  }
  EXPECT_LT(ErrorOf(std::string(100'000, 'x') + "/y").size(), 500u);
  EXPECT_EQ(ErrorOf(""), "");
  EXPECT_EQ(ErrorOf("\n\n#\n"), "");
}

TEST(DenyListTest, ShippedListIsGood) {
  DenyList list;
  EXPECT_TRUE(list.Add(DenyList::Shipped(), "shipped").ok());
  for (const char* writer :
       {"_ZN2at4cuda6detail25prepare_grouped_gemm_dataIN7cutlass10bfloat16_tE",
        "_ZN4mslk4gemm28set_grouped_gemm_args_kernelIN4cute5tupleE",
        "_ZN4mslk4gemm30set_stacked_kernel_args_kernelIN4cute5tupleE",
        // As libtorch_cuda.so of PyTorch 2.11 has it.
        "_ZN50_GLOBAL__N__fa15d16e_17_RangeFactories_cu_38772b0829elementwise_kernel_with_"
        "indexIlZZZN2at6native15arange_cuda_outERKN3c106ScalarES6_S6_RNS1_6TensorEENKUlvE_"
        "clEvENKUlvE3_clEvEUllE_EEvT_T0_PN15function_traitsISD_E11result_typeE",
        // As libtorch_cuda_linalg.so of PyTorch 2.15 has it.
        "_ZN2at6native52_GLOBAL__N__3a4d9763_19_LURecBlas3Kernel_cu_2a8e2ea221build_trsm_ptr_"
        "kernelIfEEvPT_liiPS4_S5_ii"}) {
    ASSERT_NE(list.Match(writer, ""), nullptr) << writer;
    EXPECT_EQ(list.Match(writer, "")->action, DenyList::Action::kWriter) << writer;
  }
  // Others may have kernels of such names, too.
  for (const char* follower :
       {"_Z32trsm_template_batched_lTU_kernelIfLi32ELi32ELi1EEv12magma_diag_tiiT_PPS1_iS3_iiiii",
        "_Z27sgetf2_nopiv_batched_kernelILi32ELi32EEviPPfiiiPiii", "_Z20stepinit_ipiv_kernelPPii"}) {
    ASSERT_NE(list.Match(follower, "libtorch_cuda_linalg.so"), nullptr) << follower;
    EXPECT_EQ(list.Match(follower, "libtorch_cuda_linalg.so")->action, DenyList::Action::kEverything);
    EXPECT_EQ(list.Match(follower, "libothers.so"), nullptr);
    EXPECT_EQ(list.Match(follower, ""), nullptr);
  }
}

// The tables are the parameters of type T** in the names, as cuBLASLt, cuDNN, cuSPARSE and cuSOLVER have them.
TEST(DenyListTest, ShippedListHasTheWritersOfClosedLibraries) {
  DenyList list;
  ASSERT_TRUE(list.Add(DenyList::Shipped(), "shipped").ok());
  using Tables = std::vector<uint32_t>;
  const std::vector<std::pair<const char*, Tables>> writers = {
      {"_ZN15cask__5x_cublas12fillPtrArrayEPPvS0_mm", {0}},
      {"_ZN18cask_5x_cusparselt12fillPtrArrayEPPvS0_mm", {0}},
      {"_ZN17cublasLt_imma_emu19set_device_ptrs_kerItEEvPT_S2_PiPPvS5_S5_jjjjj", {3, 4, 5}},
      {"_Z24setBatchedGemmPtrsKernelIfffEviPPKT_S2_10ulonglong3PPKT0_S7_S4_PPT1_SA_S4_", {1, 4, 7}},
      {"_ZN5cudnn19engines_precompiled42prepare_moe_grouped_gemm_fwd_arrays_kernelIiEEvPKT_PcS5_S5_S5_S5_"
       "llllllllllllmmmmmPlS6_S6_S6_S6_S6_PPKvS9_S9_PPvSB_SB_PPfSD_SC_SC_",
       {29, 30, 31, 32, 33, 34, 35, 36}},
      {"_ZN5cudnn19engines_precompiled42prepare_moe_grouped_gemm_bwd_arrays_kernelIiEEvPKT_PcS5_S5_"
       "llllllllllmmmPlS6_S6_S6_S6_S6_PPKvS9_S9_PPvPPfSD_SC_SC_",
       {23, 24, 25, 26, 27, 28}},
      {"_ZN8cusparse11update_ptrsIiifffEEvlPKT_PT1_lllPT2_lllPKT0_PT3_lllliiPS5_PS7_PSC_", {18, 19, 20}},
      {"_ZN6kernel23init_X_diag_blocks_listIfLl512ELl64EEEvPT_lPllPS2_", {4}},
      {"_ZN6kernel27init_triangular_blocks_listIfLl512ELl64ELb0EEEvPT_llPllPS2_", {5}},
      {"_ZN6kernel23init_scales_blocks_listILl512ELl32EEEvlPlS1_lPS1_", {4}},
      {"_ZN6kernel26init_iscomplex_blocks_listILl512EEEvlPlPcPS2_", {3}},
      {"_Z24iglubatch_setup_pointersiiiPdPS_", {4}},
  };
  for (const auto& [name, tables] : writers) {
    const DenyList::Entry* const row = list.Match(name, "");
    ASSERT_NE(row, nullptr) << name;
    EXPECT_EQ(row->action, DenyList::Action::kWriter) << name;
    EXPECT_EQ(row->tables, tables) << name;
  }
}

TEST(DenyListTest, LinesAreReadBack) {
  DenyList list;
  ASSERT_TRUE(
      list.Add(DenyListLine("_Z3foov", "libfoo.so", "audit: foo(int *, void)") + DenyListLine("bar", "", ""),
               "list")
          .ok());
  EXPECT_NE(list.Match("_Z3foov", "libfoo.so"), nullptr);
  EXPECT_NE(list.Match("bar", ""), nullptr);
  EXPECT_EQ(list.entries().size(), 2u);
}

}  // namespace
}  // namespace spillway::integration
