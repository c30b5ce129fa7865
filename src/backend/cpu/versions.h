/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles kernels for several instruction sets; for the files that contain them. */
#pragma once

#define INLINE static inline __attribute__((always_inline))

/* CPU_VERSIONS makes the function cpu_kernel_<name> from the inline function <name>. It is compiled for several
 * instruction sets; the widest that the machine has is called. */
#if defined(__x86_64__) && defined(__GNUC__)
#define CPU_VERSIONS(result, name, parameters, arguments)                                                              \
  __attribute__((target("avx512f"))) static result name##_avx512 parameters {                                          \
    return name arguments;                                                                                             \
  }                                                                                                                    \
  __attribute__((target("avx2,fma"))) static result name##_avx2 parameters {                                           \
    return name arguments;                                                                                             \
  }                                                                                                                    \
  result cpu_kernel_##name parameters {                                                                                \
    if (__builtin_cpu_supports("avx512f"))                                                                             \
      return name##_avx512 arguments;                                                                                  \
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))                                               \
      return name##_avx2 arguments;                                                                                    \
    return name arguments;                                                                                             \
  }
#else
#define CPU_VERSIONS(result, name, parameters, arguments)                                                              \
  result cpu_kernel_##name parameters {                                                                                \
    return name arguments;                                                                                             \
  }
#endif
