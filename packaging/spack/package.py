# SPDX-License-Identifier: Apache-2.0
# A recipe for Spack; packaging/README.md says how to use it.
from spack.package import *


class Petra(AutotoolsPackage, CudaPackage):
    """Trains neural networks that are cut into stages, with exact or delayed gradients: emulated on one device, executed over MPI, or
    simulated."""

    # No archive has been published: spack dev-build petra@main in a checkout.
    version("main")

    variant(
        "mpi", default=True, description="execution on the processes of mpirun (run.mode: execute)"
    )
    variant("jpeg", default=True, description="folders of JPEG images (data.set: imagefolder)")
    variant("nccl", default=False, when="+cuda+mpi", description="messages between GPUs by NCCL")
    variant("analysis", default=True, description="what the plotting scripts need")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("autoconf@2.71:", type="build")
    depends_on("automake@1.16:", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")

    depends_on("onednn@2.6:")
    depends_on("openblas")
    depends_on("hdf5@1.10.7:~mpi")
    depends_on("libyaml")
    depends_on("jansson")
    depends_on("gsl")
    depends_on("xxhash")
    depends_on("random123")
    depends_on("libjpeg-turbo", when="+jpeg")
    depends_on("mpi", when="+mpi")
    depends_on("cudnn@9.8:", when="+cuda")
    depends_on("nccl@2.18:", when="+nccl")
    depends_on("check", type="test")
    with when("+analysis"):
        depends_on("python@3.9:", type="run")
        depends_on("py-h5py", type="run")
        depends_on("py-numpy", type="run")
    depends_on("py-pandas", type="run")
    depends_on("py-pyyaml", type="run")
    depends_on("py-scipy", type="run")
    depends_on("py-xxhash", type="run")
        depends_on("py-matplotlib", type="run")

    conflicts(
        "cuda_arch=none",
        when="+cuda",
        msg="a CUDA build needs the capabilities of its devices: cuda_arch=80,90",
    )

    def autoreconf(self, spec, prefix):
        Executable("./bootstrap")()

    def configure_args(self):
        spec = self.spec
        args = [
            "--with-turbojpeg=" + ("yes" if spec.satisfies("+jpeg") else "no"),
        ]
        args.append("--with-mpi=" + (spec["mpi"].prefix if spec.satisfies("+mpi") else "no"))
        args.append("--with-nccl=" + (spec["nccl"].prefix if spec.satisfies("+nccl") else "no"))
        if spec.satisfies("+cuda"):
            args.append("--with-cuda=" + spec["cuda"].prefix)
            args.append("--with-cudnn=" + spec["cudnn"].prefix)
            args.append("CUDA_ARCHS=" + " ".join(spec.variants["cuda_arch"].value))
        else:
            args.append("--without-cuda")
        return args
