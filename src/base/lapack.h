/* The few calls of BLAS and LAPACK that decompositions need, with the names and column-major matrices of their Fortran
 * interface: of OpenBLAS (libopenblas.so.0), held to one thread, else of the reference library (liblapack.so.3). It is
 * opened at the first call and stays open; the calls may be made by several threads. */
#ifndef TT_BASE_LAPACK_H
#define TT_BASE_LAPACK_H

#include "base/error.h"

struct tt_lapack {
    void (*gemm)(const char *trans_a, const char *trans_b, const int *m, const int *n, const int *k,
                 const double *alpha, const double *a, const int *lda, const double *b, const int *ldb,
                 const double *beta, double *c, const int *ldc, size_t, size_t);
    void (*syrk)(const char *uplo, const char *trans, const int *n, const int *k, const double *alpha,
                 const double *a, const int *lda, const double *beta, double *c, const int *ldc, size_t,
                 size_t);
    void (*syevr)(const char *jobz, const char *range, const char *uplo, const int *n, double *a,
                  const int *lda, const double *vl, const double *vu, const int *il, const int *iu,
                  const double *abstol, int *m, double *w, double *z, const int *ldz, int *isuppz,
                  double *work, const int *lwork, int *iwork, const int *liwork, int *info, size_t, size_t,
                  size_t);
};

/* TT_ERR_UNSUPPORTED names the package where neither library is there. */
TT_MUST_USE tt_status tt_lapack_open(const struct tt_lapack **out);

#endif
