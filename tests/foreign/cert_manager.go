// The controllers of cert-manager that issue self-signed certificates, without the program around them, which is in a
// module that no proxy has.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	options := controller.ContextOptions{KubernetesAPIQPS: 50, KubernetesAPIBurst: 50}
	options.Kubeconfig = os.Getenv("KUBECONFIG")
	options.ClusterResourceNamespace = "default"
	options.CertificateRequestMinimumBackoffDuration = time.Hour
	options.CertificateRequestMaximumBackoffDuration = time.Hour
	factory, err := controller.NewContextFactory(ctx, options)
	if err != nil {
		log.Fatal(err)
	}
	shared, err := factory.Build()
	if err != nil {
		log.Fatal(err)
	}
	for name, construct := range controller.Known() {
		one, err := construct(factory)
		if err != nil {
			log.Fatalf("%s: %v", name, err)
		}
		go func() {
			if err := one.Run(2, ctx); err != nil {
				log.Fatalf("%s: %v", name, err)
			}
		}()
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	shared.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	<-ctx.Done()
}
