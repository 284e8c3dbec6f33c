"""A sweep over fbpic's options that launches its kernels."""

from tempfile import mkdtemp

from fbpic import openpmd_diag as diag
from fbpic.lpa_utils.bunch import add_elec_bunch_gaussian
from fbpic.lpa_utils.laser import GaussianLaser, add_laser_pulse
from fbpic.main import Simulation
from scipy.constants import c

# fmt: off
for Nm, shape, ends, comoving, correction in (
    (1, "linear", "periodic", None, "curl-free"), (2, "cubic", "open", None, "cross-deposition"),
    (2, "linear", "open", 0.5 * c, "curl-free"), (3, "cubic", "periodic", 0.5 * c, "cross-deposition"),
):
    sim = Simulation(
        32, 20e-6, 16, 10e-6, Nm, 20e-6 / 32 / c, n_e=1e24, p_nz=1, p_nr=1, p_nt=4, use_cuda=True,
        verbose_level=0, n_guard=8, boundaries={"z": ends, "r": "open" if ends == "open" else "reflective"},
        v_comoving=comoving, n_order=8, n_damp={"z": 8, "r": 8}, exchange_period=1, current_correction=correction,
        particle_shape=shape)
    electrons, photons = sim.ptcl[0], sim.add_new_species(q=0, m=0)
    electrons.track(sim.comm)
    electrons.activate_spin_tracking(sx_m=1.0, sy_m=0.0, sz_m=0.0)
    atoms = sim.add_new_species(q=0, m=1e-26, n=1e24, p_nz=1, p_nr=1, p_nt=4)
    atoms.activate_spin_tracking(sx_m=1.0, sy_m=0.0, sz_m=0.0)
    atoms.make_ionizable("N", electrons, level_start=0)
    electrons.activate_synchrotron((1e-19, 1e-18, 8), (-1, 1, 4), (-1, 1, 4))
    electrons.activate_compton(photons, 1e-19, 1e-6, 5e-6, 5e-6, 0)
    sim.diags = [diag.FieldDiagnostic(1, sim.fld, sim.comm, write_dir=mkdtemp()),
                 diag.ParticleDiagnostic(1, {"electrons": electrons}, sim.comm, write_dir=mkdtemp())]
    if ends == "open":
        sim.set_moving_window(v=c)
        add_laser_pulse(sim, GaussianLaser(1.0, 5e-6, 1e-14, 10e-6), method="antenna", z0_antenna=1e-6)
        bunch = add_elec_bunch_gaussian(sim, 1e-6, 1e-6, 1e-6, 10.0, 0.1, 1e-12, 100, z_injection_plane=10e-6)
        zone = {"comm": sim.comm, "write_dir": mkdtemp()}
        sim.diags += [diag.BackTransformedFieldDiagnostic(0, 20e-6, c, 1e-14, 2, 2.0, 1, sim.fld, **zone)]
        zone["species"], zone["write_dir"] = {"bunch": bunch}, mkdtemp()
        sim.diags += [diag.BackTransformedParticleDiagnostic(0, 20e-6, c, 1e-14, 2, 2.0, 1, sim.fld, **zone)]
    sim.step(3)
