#!/busybox sh
# First process of the guest. Its root is the host folder that the rig has laid out, read-only; the programs are the
# host's own /usr. Nothing the guest writes reaches the host but through NFS and the control connection.
/busybox mount -t hostfs -o ro,/usr none /usr
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 PYTHONUTF8=1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mountpoint -q /dev || mount -t devtmpfs dev /dev
for dir in /dev/shm /run /var /mnt /tmp; do
    mkdir -p $dir
    mount -t tmpfs -o mode=1777 tmpfs $dir
done
mkdir -p /var/lib/nfs /run/lock
# busybox answers the kernel's calls for modules, so that the host needs no kmod.
echo /modprobe > /proc/sys/kernel/modprobe
/modprobe nfsv3
ip link set lo up
ip addr add 10.77.0.2/24 dev vec0
ip link set vec0 up
/usr/bin/python3 -B /guest/run.py
sync
/busybox poweroff -f
